"""Shell scripts, read and never run: which commands a script comes to, with which words.

words and statements take a text apart, values fills variables in, conditions decides what can be decided, cases follows
the script.
"""
