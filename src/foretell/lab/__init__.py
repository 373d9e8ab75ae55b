"""The proof bench: several hosts on one machine, joined by links of a known rate and a known delay.

    from foretell.lab.network import LabNetwork
    from foretell.lab.hosts import Lab
    with Lab(LabNetwork(hosts=2, rate=125e6, delay=0.5e-3)) as lab:
        lab.each(work)                       # a process on every host

The hosts are network namespaces, the links a program of our own (`switch.c`) that holds packets back. Nothing is
emulated of the computing: ranks share this machine's cores.
"""
