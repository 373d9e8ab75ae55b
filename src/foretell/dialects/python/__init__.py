"""Python that makes a configuration, followed from its syntax tree and never run.

`values` is what expressions are worth, `modules` which functions and constants a file has or imports from files that
lie beside it, `names` what names stand for,
`frame` works expressions out, `calls` what calls return and change, `branches` joins two branches,
`follower` follows statements. What needs a running program is not known; what it may change is open from there on.
"""
