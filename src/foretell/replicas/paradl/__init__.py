"""The oracle of Kahira et al. 2021 (ParaDL, arXiv 2104.09075), exactly: a yardstick beside foretell's own.

platform     the machine (ABCI), its links, seconds of rings and halos
release      versions of the authors' tool: constants and oddities, each with a name
rows         serial, data, spatial, pipeline, filter, channel, data+filter, data+spatial as the tool has them
table3       the same rows as the paper prints them
limits       the most ranks of each row, and refusals
shapes       which row a plan is
predict      from a layer file and a plan to an answer
"""
