"""Devices, links and clusters: the figures of papers, the forms a person writes, and bad files."""

from __future__ import annotations

import json
import math
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from foretell.cli import main
from foretell.cost.kernels._reached import rates
from foretell.errors import BadInput
from foretell.hardware import catalog, cgroup, members, quantity, this_machine
from foretell.hardware.cluster import Level
from foretell.plan.figures import look_up
from foretell.plan.trainer import trainer

# Units


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("80 GB", "memory", 80e9),
        ("80 GiB", "memory", 80 * 2**30),
        ("81,090 MiB", "memory", 81090 * 2**20),
        ("3.35 TB/s", "bandwidth", 3.35e12),
        ("400 Gb/s", "bandwidth", 50e9),
        ("50GB/s", "bandwidth", 50e9),
        ("312 Tflop/s", "rate", 312e12),
        ("624 Top/s", "rate", 624e12),
        ("4.5 us", "time", 4.5e-6),
        ("90 ns", "time", 90e-9),
        ("0 us", "time", 0.0),
        ("1.41 GHz", "frequency", 1.41e9),
        ("700 W", "power", 700.0),
    ],
)
def test_units(text: str, kind: str, value: float) -> None:
    assert quantity.parse(text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("312 Tflop/s", "bandwidth", "unit of a rate"),
        ("400 GB", "bandwidth", "unit of a memory"),
        ("80", "memory", "needs its unit"),
        ("80 gb", "memory", "not a unit"),
        ("80 GB/s", "memory", "unit of a bandwidth"),
        ("fast", "rate", "not a number with a unit"),
        ("", "rate", "not a number with a unit"),
        ("-3 GB", "memory", "not a number with a unit"),
        ("0 GB", "memory", "not a positive memory"),
        ("1e999 GB", "memory", "not a positive memory"),
        ("5 min", "time", "not a unit"),
    ],
)
def test_wrong_units(text: str, kind: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as problem:
        quantity.parse(text, kind, where="here")
    assert problem.value.where == "here"
    assert problem.value.fix


def test_figures_are_shown_to_read() -> None:
    assert quantity.show(3.35e12, "bandwidth") == "3.35 TB/s"
    assert quantity.show(80 * 2**30, "memory") == "80 GiB"
    assert quantity.show(1.19e-6, "time") == "1.19 us"
    assert quantity.show(9e-8, "time") == "90 ns"


# Golden figures


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [
        ("v100-16", "fp16", 125),
        ("a100-40", "bf16", 312),
        ("a100-80", "bf16", 312),
        ("h100", "bf16", 989.4),
        ("h200", "bf16", 989.4),
        ("b200", "bf16", 2250),
        ("gb200", "bf16", 2500),
        ("a100-80", "tf32", 156),
        ("v100-16", "tf32", 15.7),  # no such units: plain fp32
        ("p100", "fp16", 21.22),
    ],
)
def test_peaks_are_dense(name: str, precision: str, tera: float) -> None:
    assert members.device(name).matrix_rate(precision) == pytest.approx(tera * 1e12)


def test_a_precision_without_units_is_refused_by_name() -> None:
    assert not members.device("v100-16").supports("bf16")
    with pytest.raises(BadInput, match="v100-16 has no bf16 units"):
        members.device("v100-16").matrix_rate("bf16")


def test_memory_is_what_a_program_gets() -> None:
    """A card sold as 80 GB offers 79 GiB: more than 80e9 bytes, less than 80 * 2**30."""
    assert 80e9 < members.device("h100").memory_bytes < 80 * 2**30
    assert members.device("h200").memory_bytes == 150109880320 - 150109880320 % 2**20


@pytest.mark.parametrize(
    ("name", "nominal", "ring"),
    [
        ("nvlink2-switch", 150, 0.83),
        ("nvlink2-mesh", 150, 0.90),
        ("nvlink3-switch", 300, 0.79),
        ("nvlink4-switch", 450, 0.81),
        ("nvlink5-switch", 900, 0.76),
        ("nvlink-bridge", 300, 0.39),
        ("pcie3-two-roots", 15.75, 0.37),
        ("pcie3-no-peer", 15.75, 0.30),
        ("ib-hdr", 25, 0.80),
        ("ib-ndr", 50, 0.95),
        ("roce-400", 50, 0.88),
        ("efa1", 12.5, 0.86),
        ("efa2", 12.5, 0.92),
        ("tcpxo", 25, 0.92),
        ("tcpx", 25, 0.68),
    ],
)
def test_what_sweeps_measured(name: str, nominal: float, ring: float) -> None:
    link = members.link(name)
    assert link.bandwidth == pytest.approx(nominal * 1e9)
    assert link.efficiency_of("ring", 1000) == ring


@pytest.mark.parametrize(
    ("name", "microseconds"),
    [("ib-hdr", 2), ("ib-ndr", 4), ("roce-400", 5), ("efa1", 65), ("efa2", 22), ("tcpxo", 48), ("tcpx", 250)],
)
def test_fabrics_add_their_latency(name: str, microseconds: float) -> None:
    assert members.link(name).hop_seconds == pytest.approx(microseconds * 1e-6)


def test_efficiency_depends_on_the_number_of_ranks() -> None:
    pcie = members.link("pcie3")
    assert [pcie.efficiency_of("ring", ranks) for ranks in (2, 3, 4, 5, 8)] == [0.78, 0.70, 0.70, 0.55, 0.55]
    nvlink = members.link("nvlink5-switch")
    assert (nvlink.efficiency_of("ring", 2), nvlink.efficiency_of("nvls", 8)) == (0.54, 0.60)
    assert members.link("pcie3").efficiency_of("all_to_all", 2) == 0.78, "not measured: the ring's"
    with pytest.raises(BadInput, match="no class of collectives"):
        pcie.efficiency_of("gather", 2)


def test_sockets_do_not_scale_with_the_line_rate() -> None:
    reached = [members.link(f"eth-{rate}").reached("ring", 16) for rate in (10, 100, 400)]
    assert reached[0] == pytest.approx(0.94 * 1.25e9)
    assert reached[1] == reached[2] == 3e9


# Clusters


def test_abci_is_the_system_of_the_oracle_paper() -> None:
    abci = catalog.cluster("abci")
    assert (abci.ranks_per_node, abci.device.name) == (4, "v100-16")
    node, rack, fabric = abci.levels
    assert rack.size == 17
    assert abci.node_bandwidth(rack) == pytest.approx(2 * 12.5e9)
    assert abci.node_bandwidth(fabric) == pytest.approx(2 * 12.5e9 / 3)
    assert abci.level_of(4) == node
    assert abci.level_of(68) == rack
    assert abci.level_of(2, stride=4) == fabric, "some pair of nodes straddles two racks of 17"
    assert catalog.cluster("abci:64").level_of(16, stride=4).name == "rack"


def test_nvlink_reaches_beyond_the_node() -> None:
    racks = catalog.cluster("2xgb200-nvl72")
    assert (racks.ranks, racks.ranks_per_node, racks.nodes, racks.domain) == (144, 4, 36, 72)
    assert racks.level_of(72).link.kind == "nvlink"
    assert racks.level_of(144).link.kind == "infiniband"
    assert racks.spread(72) == (4, 18, 1)
    assert catalog.cluster("64xgb200").domain == 64


def test_ranks_share_the_ports_of_their_node() -> None:
    cluster = catalog.cluster("16xv100-16")
    fabric = cluster.levels[-1]
    assert fabric.ports == 2
    assert cluster.rank_bandwidth(fabric) == pytest.approx(2 * 12.5e9 / 4)
    assert catalog.cluster("32xaws-p5").node_bandwidth(catalog.cluster("32xaws-p5").levels[-1]) == 400e9


def test_axes_cross_the_links_they_must() -> None:
    cluster = catalog.cluster("64xh100")
    names = [cluster.level_of(size, stride).name for size, stride in ((1, 1), (8, 1), (16, 1), (8, 8), (2, 4), (3, 1))]
    assert names == ["node", "node", "fabric", "fabric", "node", "fabric"]
    assert cluster.spread(16) == (8, 2)
    assert cluster.spread(8, 8) == (1, 8)
    assert cluster.spread(4, 2) == (4, 1)
    with pytest.raises(BadInput, match="has 64"):
        cluster.level_of(8, 16)


@pytest.mark.parametrize(
    ("text", "sizes", "canonical"),
    [
        ("h100", [1], "h100"),
        ("1xh100", [1], "h100"),
        ("4xh100", [4], "4xh100"),
        ("64xh100", [8, 8], "64xh100"),
        ("1024xa100-80", [8, 128], "1024xa100-80"),
        ("16xv100-16", [4, 4], "16xv100-16"),
        ("8x8xh100,ib-ndr", [8, 8], "64xh100"),
        ("8x8xh100,roce-400", [8, 8], "64xh100,roce-400"),
        ("8x8xh100,4xib-ndr", [8, 8], "64xh100,4xib-ndr"),
        ("2x4xh100", [4, 2], "2x4xh100"),
        (" 64xH100 ", [8, 8], "64xh100"),
        ("64XH100", [8, 8], "64xh100"),
        ("8X8XH100,4XIB-NDR", [8, 8], "64xh100,4xib-ndr"),
        ("32XDGX-A100", [8, 32], "32xdgx-a100"),
        ("ABCI:64", [4, 16], "abci:64"),
        ("1x4xh100", [4], "4xh100"),
        ("128xgb200", [4, 16, 2], "128xgb200"),
        ("1024xgb200", [4, 16, 16], "1024xgb200"),
        ("dgx-a100", [8], "dgx-a100"),
        ("32xdgx-a100", [8, 32], "32xdgx-a100"),
        ("4xdgx-h100,roce-400", [8, 4], "4xdgx-h100,roce-400"),
        ("abci:64", [4, 16], "abci:64"),
        ("abci:128", [4, 16, 2], "abci:128"),
        ("abci:4352", [4, 17, 64], "abci"),
        ("abci:3", [3], "abci:3"),
        ("lassen:8", [2, 2, 2], "lassen:8"),
        ("lassen:4", [2, 2], "lassen:4"),
    ],
)
def test_what_a_person_writes(text: str, sizes: list[int], canonical: str) -> None:
    cluster = catalog.cluster(text)
    assert [level.size for level in cluster.levels] == sizes
    assert cluster.text == canonical


def test_notes_tell_what_was_chosen() -> None:
    assert catalog.named("64xa100").notes == ("a100 is taken as a100-80",)
    assert catalog.named("8x8xh100,roce-400").notes == ("roce-400 with 8 ports a node",)
    assert "not used" in catalog.named("8xh100,ib-ndr").notes[0]
    assert "not used" in catalog.named("dgx-h100,roce-400").notes[0]
    assert catalog.named("64xh100").notes == ()


BAD = {
    "": "64xh100",
    "12xh100": "8xh100 or 16xh100",
    "64xh10": "h100",
    "h1oo": "foretell list devices",
    "76xgb200": "72xgb200 or 80xgb200",
    "h100:4": "4xh100",
    "0xh100": "1 to",
    "99999999999xh100": "1 to",
    "9999999x9999xh100": "at most",
    "8x8x8xh100": "64xh100",
    "8x8xh100,ib-nrd": "ib-ndr",
    "8x8xh100,": "ib-ndr",
    "8x8xh100,ib-ndr,ib-hdr": "one inside the node",
    "8x8xh100,8xnvlink4-switch": "nvlink4-switch",
    "abci:70": "abci:68 or abci:72",
    "abci:9999": "abci:4352",
    "3xabci": "[network]",
    "2x2xdgx-h100": "2xdgx-h100",
    "2xdgx-h100:4": "dgx-h100:4",
    "4xdgx-h100,nvlink5": "4xdgx-h100,ib-ndr",
    "nowhere.toml": "foretell list clusters",
    "64\u00d7h100": "64xh100",
    "8\u00d78\u00d7h100": "8x8xh100",
    "64*H100": "64xh100",
    "64 x h100": "64xh100",
    "64h100": "64xh100",
    "h100x64": "64xh100",
    "p5": "aws-p5",
    "16\u00d7p5": "aws-p5",
}


@pytest.mark.parametrize("text", BAD)
def test_what_cannot_be_a_cluster_gets_a_way_out(text: str) -> None:
    with pytest.raises(BadInput) as problem:
        catalog.cluster(text)
    assert BAD[text] in problem.value.fix


# Files of one's own

OWN = """
title = "our rack"
device = "h100"

[[levels]]
name = "node"
size = { value = 4, source = "us" }
link = "nvlink4"

[[levels]]
name = "rack"
size = { value = 8, source = "us" }
link = "ib-ndr"
ports = { value = 2, source = "us" }
oversubscription = { value = 1.5, source = "us" }

[network]
link = "eth-100"
ports = { value = 1, source = "us" }

[sources]
us = "counted in the machine room, 2025"
"""


def own(folder: Path, text: str = OWN, name: str = "ours.toml") -> str:
    path = folder / name
    path.write_bytes(text.encode(errors="surrogateescape"))
    return str(path)


def test_a_file_of_ones_own_works_the_same(tmp_path: Path) -> None:
    file = own(tmp_path)
    cluster = catalog.cluster(file)
    assert (cluster.ranks, cluster.name, cluster.text) == (32, "ours", file)
    assert catalog.cluster(cluster.text) == cluster
    assert cluster.sources["levels[1].ports"] == "counted in the machine room, 2025"
    part, several = catalog.cluster(f"{file}:8"), catalog.cluster(f"3x{file}")
    assert (part.ranks, several.ranks) == (8, 96)
    assert catalog.cluster(part.text) == part
    assert catalog.cluster(several.text) == several


def test_a_file_may_bring_its_own_device_and_link(tmp_path: Path) -> None:
    devices = Path(members.__file__).parent / "devices"
    links = Path(members.__file__).parent / "links"
    own(tmp_path, (devices / "h100.toml").read_text().replace("81090 MiB", "100 GiB"), "chip.toml")
    own(tmp_path, (links / "ib-ndr.toml").read_text().replace("400 Gb/s", "500 Gb/s"), "wire.toml")
    text = OWN.replace('"h100"', '"chip.toml"').replace('link = "ib-ndr"', 'link = "wire.toml"')
    cluster = catalog.cluster(own(tmp_path, text))
    assert cluster.device.memory_bytes == 100 * 2**30
    assert cluster.levels[1].link.bandwidth == 62.5e9


def test_a_file_may_name_its_communication_library(tmp_path: Path) -> None:
    file = own(tmp_path, OWN.replace("[[levels]]", 'library = "gloo"\n\n[[levels]]', 1))
    whole, part, several = (catalog.cluster(text) for text in (file, f"{file}:8", f"3x{file}"))
    assert [one.library for one in (whole, part, several)] == ["gloo"] * 3
    assert catalog.cluster(own(tmp_path)).library == ""


MIXED = OWN.replace(
    'device = "h100"\n',
    '[[devices]]\ndevice = "h100"\nranks = { value = 16, source = "us" }\n\n'
    '[[devices]]\ndevice = "a100-80"\nranks = { value = 16, source = "us" }\n',
)


def test_a_mixed_cluster_has_no_one_device(tmp_path: Path) -> None:
    # A table header must come after the plain keys, so the groups follow the title.
    cluster = catalog.cluster(own(tmp_path, MIXED))
    assert cluster.mixed
    assert "16 x NVIDIA H100 SXM5 80 GB + 16 x NVIDIA A100 SXM4 80 GB" in cluster.describe()
    with pytest.raises(BadInput, match="steps are predicted on it and plans searched") as problem:
        _ = cluster.device
    assert "16xh100" in problem.value.fix
    with pytest.raises(BadInput, match="mixes devices"):
        catalog.cluster(f"{cluster.text}:8")


def swapped(old: str, new: str) -> str:
    assert old in OWN
    return OWN.replace(old, new)


BROKEN = {
    "not toml": ("title = ", "not a TOML file"),
    "empty": ("", "levels is missing"),
    "binary": ("\0\udcff", "a binary file"),
    "both": (MIXED.replace("[[devices]]", 'device = "h100"\n\n[[devices]]', 1), "both device and [[devices]]"),
    "no device": (swapped('device = "h100"\n', ""), "device is missing"),
    "unknown device": (swapped('"h100"', '"h10O"'), "no device is called"),
    "unknown link": (swapped('"nvlink4"', '"nvlnk4"'), "no link is called"),
    "unknown key": (swapped("title", "tilte"), "unknown key 'tilte'\n  where  {}\n  try    did you mean title?"),
    "unknown table": (swapped("[network]", "[netwrok]"), "did you mean network?"),
    "extra key": (swapped('title = "our rack"', 'title = "our rack"\ncolour = "green"'), "unknown key 'colour'"),
    "optional keys": (swapped('"nvlink4"', '"nvlink4"\ncolour = "green"'), "name, size, link, ports, oversubscription"),
    "no value": (swapped('size = { value = 4, source = "us" }', 'size = { source = "us" }'), "has no value"),
    "unnamed source": (swapped('4, source = "us"', '4, source = "them"'), "[sources] has no 'them'"),
    "a text for a number": (swapped("value = 4,", 'value = "4",'), "not a positive number"),
    "half a device": (swapped("value = 4,", "value = 4.5,"), "not a whole number"),
    "a negative size": (swapped("value = 4,", "value = -4,"), "not a positive number"),
    "a truth for a number": (swapped("value = 4,", "value = true,"), "not a positive number"),
    "no ports": (swapped('ports = { value = 2, source = "us" }\n', ""), "ports is missing"),
    "no node": (swapped('name = "node"', 'name = "box"'), "no level is called node"),
    "two nodes": (swapped('name = "rack"', 'name = "node"'), "same name"),
    "outside in": (swapped('"nvlink4"', '"ib-ndr"\nports = { value = 1, source = "us" }').replace(
        'link = "ib-ndr"\nports = { value = 2, source = "us" }', 'link = "nvlink4"'), "innermost first"),
    "under-subscribed": (swapped("value = 1.5", "value = 0.5"), "below 1"),
    "not a network": (swapped('link = "eth-100"', 'link = "pcie3"'), "not a network"),
    "groups do not add up": (MIXED.replace("value = 16", "value = 15"), "the groups have 30 ranks"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_cluster_file_names_file_key_and_example(case: str, tmp_path: Path) -> None:
    text, says = BROKEN[case]
    with pytest.raises(BadInput) as problem:
        catalog.cluster(own(tmp_path, text))
    assert says.format(tmp_path / "ours.toml") in str(problem.value)
    assert "ours.toml" in problem.value.where
    assert problem.value.fix or case == "not toml"


@pytest.mark.parametrize("size", ["size = 4", "size = { value = 4 }"])
def test_figures_of_an_own_file_need_no_source(size: str, tmp_path: Path) -> None:
    sourced, bare = catalog.cluster(own(tmp_path)), swapped('size = { value = 4, source = "us" }', size)
    found = catalog.cluster(own(tmp_path, bare))
    assert (found.levels, found.groups) == (sourced.levels, sourced.groups)
    assert found.sources["levels[0].size"] == f"given in {tmp_path / 'ours.toml'}"
    plain = re.sub(r'\{ value = ([^,]+), source = "\w+" \}', r"\1", OWN.partition("[sources]")[0])
    assert catalog.cluster(own(tmp_path, plain)).levels == sourced.levels


def test_files_that_ship_need_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.hardware.table.PACKAGE", tmp_path)
    for size in ("size = 4", "size = { value = 4 }"):
        with pytest.raises(BadInput, match="no source"):
            catalog.cluster(own(tmp_path, swapped('size = { value = 4, source = "us" }', size)))


@pytest.mark.parametrize(("network", "rdma"), [("eth-400", "roce-400"), ("eth-25", "roce-25"), ("eth-100", "roce-100")])
def test_ethernet_says_that_it_means_sockets(network: str, rdma: str) -> None:
    (note,) = [note for note in catalog.named(f"2x8xh100,{network}").notes if "sockets" in note]
    assert note.startswith(f"{network} is Ethernet with TCP sockets, 3") and note.endswith(f"with RDMA it is {rdma}")


@pytest.mark.parametrize("network", ["eth-10", "ib-ndr", "roce-400"])
def test_other_networks_say_nothing_of_sockets(network: str) -> None:
    assert not [note for note in catalog.named(f"2x8xh100,{network}").notes if "sockets" in note]


def test_a_folder_or_another_file_is_no_cluster(tmp_path: Path) -> None:
    (tmp_path / "room.toml").mkdir()
    own(tmp_path / "room.toml")
    with pytest.raises(BadInput, match="a folder, not a TOML file") as problem:
        catalog.cluster(str(tmp_path / "room.toml"))
    assert problem.value.fix == str(tmp_path / "room.toml" / "ours.toml")
    with pytest.raises(BadInput, match="is a folder, not a cluster"):
        catalog.cluster(str(tmp_path))
    with pytest.raises(BadInput, match=r"is a file that is no \.toml"):
        catalog.cluster(own(tmp_path, "", "notes.txt"))


def test_an_example_is_in_the_unit_of_its_figure(tmp_path: Path) -> None:
    """Half of an over-subscription would be refused, and links are sold in bits."""
    bare = OWN.replace('oversubscription = { value = 1.5, source = "us" }', 'oversubscription = { source = "us" }')
    with pytest.raises(BadInput) as problem:
        catalog.cluster(own(tmp_path, bare))
    assert problem.value.fix == 'oversubscription = { value = 2, source = "us" }'
    assert (
        catalog.cluster(own(tmp_path, bare.replace('oversubscription = { source = "us" }', problem.value.fix))).ranks
        == 32
    )


FILES = {"device": "devices/h100.toml", "link": "links/ib-ndr.toml", "machine": "clusters/lassen.toml"}


def required() -> list[tuple[str, str]]:
    """Every line or table of a file of each kind that must be there, by its key."""
    found: list[tuple[str, str]] = []
    for kind, file in FILES.items():
        content = tomllib.loads((Path(members.__file__).parent / file).read_text())
        found += [(kind, key) for key in content if key not in ("sources", "peak")]
    return found


@pytest.mark.parametrize(("kind", "key"), required())
def test_what_is_proposed_for_a_missing_key_is_toml_that_works(kind: str, key: str, tmp_path: Path) -> None:
    def read(text: str) -> object:
        own(tmp_path, text, "one.toml")
        get = catalog.cluster if kind == "machine" else getattr(members, kind)
        return get(str(tmp_path / "one.toml"))

    text = (Path(members.__file__).parent / FILES[kind]).read_text()
    pattern = rf"(?ms)^\[+{key}\]+\n.*?\n(?=\[(?!\[?{key}))|^{key} = [^\n]*\n"
    shorter = re.sub(pattern, "", text)
    assert key not in tomllib.loads(shorter)
    with pytest.raises(BadInput, match=f"{key} is missing") as problem:
        read(shorter)
    fix = problem.value.fix
    assert list(tomllib.loads(fix)) == [key]
    sources = 'datasheet = "a datasheet"\nmeasured = "a sweep"\nus = "counted"\n'
    plain, _, tables = shorter.partition("\n[")
    parts = (plain, f"[{tables}", fix) if fix.startswith("[") else (plain, fix, f"[{tables}")
    read("\n".join(parts).replace("[sources]\n", f"[sources]\n{sources}"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"3.35 TB/s"', '"3.35 Tflop/s"', "memory_bandwidth"),
        ('"3.35 TB/s"', "3350", "not a text with a unit"),
        ('"81090 MiB"', '"81090"', "needs its unit"),
        ("bf16 =", "bf61 =", "no precision is called 'bf61'"),
        ('launch = { value = "1.85 us", source = "launch" }\n', "", "launch is missing"),
        ("[vector]\n", "[vectors]\n", "did you mean vector?"),
        ('host_link = "pcie5"', 'host_link = "pcie55"', "no link is called 'pcie55'"),
        ('network = "ib-ndr"', 'network = "ib-nrd"', "no link is called 'ib-nrd'"),
        ('architecture = "hopper"', 'architecture = "hoper"', "no architecture is called 'hoper'"),
        ('title = "NVIDIA H100 SXM5 80 GB"', "title = 3", "not a text"),
        ('fp32 = { value = "66.9 Tflop/s", source = "lockwood" }\n', "", "needs vector.fp32"),
    ],
)
def test_a_broken_device_file(old: str, new: str, says: str, tmp_path: Path) -> None:
    text = (Path(members.__file__).parent / "devices" / "h100.toml").read_text()
    assert old in text
    own(tmp_path, text.replace(old, new), "chip.toml")
    with pytest.raises(BadInput) as problem:
        members.device(str(tmp_path / "chip.toml"))
    assert says in str(problem.value)
    assert "chip.toml" in problem.value.where


ARCHITECTURE = """
title = "a chip of our own"
library = "gloo"
like = "hopper"
flash3 = { value = true, source = "us" }

[matrix]
products = { value = 0.6, source = "us" }
operands = { value = 0.7, source = "us" }

[vector]
like = "volta"

[sources]
us = "products that we timed, 2025"
"""


def chip(folder: Path, text: str) -> str:
    """A device of an architecture of one's own, in files beside each other."""
    device = (Path(members.__file__).parent / "devices" / "h100.toml").read_text()
    own(folder, text, "ours-v1.toml")
    return own(folder, device.replace('architecture = "hopper"', 'architecture = "ours-v1.toml"'), "chip.toml")


def test_an_architecture_is_a_file_too(tmp_path: Path) -> None:
    device = members.device(chip(tmp_path, ARCHITECTURE))
    built = members.architecture(device.architecture)
    assert built.flash3 and built.tuned_fp32 and built.library == "gloo"
    assert built.reached["matrix"].products == 0.6 and built.reached_like == {"vector": "volta"}
    assert rates(device, "bf16") == (device.peak["bf16"] * 0.6, device.memory_bandwidth * 0.7, "datasheet")
    volta = members.architecture("volta").reached["vector"]
    assert rates(device, "fp32").flops == device.vector["fp32"] * volta.products
    table = trainer("pytorch").memory.workspace
    assert look_up(table, *built.words) == look_up(table, "hopper") != look_up(table, "any")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("products = { value = 0.6", 'products = { value = "much"', "'much' is not a positive number"),
        ('like = "volta"', 'like = "vlta"', "no architecture is called 'vlta'"),
        ("value = true", "value = 1", "1 is not true or false"),
        ('source = "us" }\n\n[matrix]', 'source = "me" }\n\n[matrix]', "[sources] has no 'me'"),
        ("[vector]", "[vectors]", "did you mean vector?"),
        ('library = "gloo"\n', "", "library is missing"),
        ("\n[sources]", "[sources]\nnobody = 'unused'", "no figure names the source 'nobody'"),
        ("flash3", "instructions = { value = [1.0], source = 'us' }\nflash3", "[1.0] are not two numbers"),
        ("[vector]", "devices = { value = 'h100', source = 'us' }\n\n[vector]", "'h100' is not a list of words"),
    ],
)
def test_a_broken_architecture_file(old: str, new: str, says: str, tmp_path: Path) -> None:
    assert old in ARCHITECTURE
    device = members.device(chip(tmp_path, ARCHITECTURE.replace(old, new, 1)))
    with pytest.raises(BadInput) as problem:
        members.architecture(device.architecture)
    assert says in str(problem.value)
    assert "ours-v1.toml" in problem.value.where


def test_a_device_without_matrix_units_has_no_peak_rather_than_an_empty_one(tmp_path: Path) -> None:
    text = (Path(members.__file__).parent / "devices" / "h100.toml").read_text()
    without = re.sub(r"(?s)\[peak\].*?(?=\[vector\])", "", text)
    own(tmp_path, without, "plain.toml")
    assert members.device(str(tmp_path / "plain.toml")).peak == {}
    own(tmp_path, without.replace("[vector]", "[peak]\n\n[vector]"), "empty.toml")
    with pytest.raises(BadInput, match=r"\[peak\] has no rate") as problem:
        members.device(str(tmp_path / "empty.toml"))
    assert "bf16 = { value =" in problem.value.fix


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('kind = "infiniband"', 'kind = "infinband"', "no kind of link"),
        ("switched = true", 'switched = "yes"', "not true or false"),
        ('"4 us", source = "latency"', '"0 us", source = "latency"', "latency of nothing"),
        ("ring = { value = 0.95", "ring = { value = 1.95", "more than all"),
        ("ring = ", "rings = ", "no class of collectives"),
        ("\nring = { value", '\n"ring@8" = { value', "efficiency.ring is missing"),
    ],
)
def test_a_broken_link_file(old: str, new: str, says: str, tmp_path: Path) -> None:
    text = (Path(members.__file__).parent / "links" / "ib-ndr.toml").read_text()
    assert old in text
    own(tmp_path, text.replace(old, new), "wire.toml")
    with pytest.raises(BadInput) as problem:
        members.link(str(tmp_path / "wire.toml"))
    assert says in str(problem.value)
    assert "wire.toml" in problem.value.where


# This machine


def test_this_machine_is_found_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "_gpu_names", list[str])
    this_machine.machine.cache_clear()
    cluster = catalog.cluster("this-machine")
    this_machine.machine.cache_clear()
    assert cluster.ranks >= 1
    assert cluster.device.memory_bytes > 2**20
    assert cluster.levels == (Level("node", cluster.ranks, members.link("loopback")),)


def test_where_all_gpus_are_hidden_this_machine_is_its_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "_gpu_names", lambda: ["NVIDIA H200"] * 4)
    for hidden, device in (("", "cpu-core"), ("2,3", "h200")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        this_machine.machine.cache_clear()
        assert this_machine.machine().cluster.device.name == device
    this_machine.machine.cache_clear()


def test_this_machine_knows_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "_gpu_names", lambda: ["NVIDIA H200"] * 4)
    this_machine.machine.cache_clear()
    cluster = catalog.cluster("this-machine")
    this_machine.machine.cache_clear()
    assert (cluster.ranks, cluster.device.name, cluster.levels[0].link.name) == (4, "h200", "nvlink4-switch")


@pytest.mark.parametrize(
    ("said", "seen"), [("", 0), ("2", 1), ("0,3", 2), ("1,-1,2", 1), ("4", 0), ("GPU-8a, GPU-9", 2)]
)
def test_gpus_that_cuda_hides_are_not_there(monkeypatch: pytest.MonkeyPatch, said: str, seen: int) -> None:
    monkeypatch.setattr(this_machine, "_gpu_names", lambda: ["NVIDIA H200"] * 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert this_machine.gpus() == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
    assert this_machine.gpus() == seen


V2 = ("0::/job/step\n", "", "memory.max", "memory.current", "inactive_file")
V1 = (
    "4:cpu,memory:/job/step\n0::/\n",
    "memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
)


@pytest.mark.parametrize(("line", "folder", "limit", "used", "spare"), [V2, V1])
def test_memory_is_that_of_the_group_and_those_around_it(
    tmp_path: Path, line: str, folder: str, limit: str, used: str, spare: str
) -> None:
    (tmp_path / "own").write_text(line)
    (tmp_path / "root" / folder / "job" / "step").mkdir(parents=True)
    for path, most, now in (("job", "1000\n", "700\n"), ("job/step", "max\n", "10\n")):
        group = tmp_path / "root" / folder / path
        (group / limit).write_text(most)
        (group / used).write_text(now)
        (group / "memory.stat").write_text(f"anon 5\n{spare} 50\n")
    assert list(cgroup.free_bytes(tmp_path / "own", tmp_path / "root")) == [350]
    assert list(cgroup.free_bytes(tmp_path / "nowhere", tmp_path / "root")) == []


def test_a_driver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(this_machine, "_PATIENCE", 0.2)
    assert this_machine._gpu_names() == []


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-80"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("Tesla V100-SXM2-16GB", "v100-16"),
        ("Tesla V100-SXM3-32GB", "v100-sxm3-32"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla P100-PCIE-16GB", "p100-pcie"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA RTX A6000", "a6000"),
        ("Quadro RTX 8000", "rtx8000"),
    ],
)
def test_the_drivers_names_are_known(reported: str, name: str) -> None:
    found = this_machine.known_device(reported)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("reported", ["NVIDIA Toaster 9000", "NVIDIA GeForce RTX 4090 Laptop GPU", ""])
def test_a_name_nobody_knows(reported: str) -> None:
    assert this_machine.known_device(reported) is None


# foretell list


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["foretell", "list", *arguments])
        main()
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("what", ["devices", "links", "clusters"])
def test_list_fits_eighty_columns_and_has_every_member(listed: Any, what: str) -> None:
    lines = listed(what).splitlines()
    assert max(len(line) for line in lines) <= 80
    first = [line.split()[0] for line in lines[2:]]
    assert set(members.names(what)) <= set(first)


@pytest.mark.parametrize("what", ["devices", "links", "clusters"])
def test_list_gives_figures_with_sources(listed: Any, what: str) -> None:
    found = json.loads(listed(what, "--json"))[what]
    assert set(members.names(what)) <= {member["name"] for member in found}
    assert all(member["sources"] for member in found)


def test_list_notes_a_mixed_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    mixed = members.machine_file(own(tmp_path, MIXED))
    monkeypatch.setattr(this_machine, "machine", lambda: mixed)
    monkeypatch.setattr(sys, "argv", ["foretell", "list", "clusters"])
    main()
    printed = capsys.readouterr()
    assert "h100 + a100-80" in printed.out


def test_list_json_is_in_si_units(listed: Any) -> None:
    found = {device["name"]: device for device in json.loads(listed("devices", "--json"))["devices"]}
    assert math.isclose(found["h100"]["memory_bandwidth"], 3.35e12)
    assert math.isclose(found["h100"]["peak"]["bf16"], 989.4e12)


@pytest.mark.parametrize("text", ["8xh100+8xa100-80", "8xh100 and 8xa100-80", "8xh100,8xa100-80", "8xH100 + 8xA100-80"])
def test_several_kinds_of_devices_are_nodes_side_by_side(text: str) -> None:
    mixed = catalog.cluster(text)
    assert [(group.device.name, group.ranks) for group in mixed.groups] == [("h100", 8), ("a100-80", 8)]
    assert [(level.size, level.link.name) for level in mixed.levels] == [(8, "nvlink3-switch"), (2, "ib-ndr")]
    assert mixed.text == "8xh100+8xa100-80"
    assert catalog.cluster("8x8xh100,4xib-ndr").ranks == 64
    with pytest.raises(BadInput, match=r"unlike sizes \(4 and 8\)") as problem:
        catalog.cluster("4xh100+8xa100-80")
    assert "[[devices]]" in problem.value.fix


@pytest.mark.parametrize(
    "text", ["8xh100@1.3x", "8x8xh100,ib-ndr@4x", "7xh100+1xh100@1.5x", "8xh100+8xa100-80,roce-400@2x", "h200@2x"]
)
def test_throttled_devices_and_degraded_links_are_said_in_the_text(text: str) -> None:
    found = catalog.cluster(text)
    assert catalog.cluster(found.text) == found
    paces = {group.device.pace for group in found.groups}
    links = {level.link.name: level.link.bandwidth for level in found.levels}
    assert max(paces) > 1 or any("@" in name for name in links)
    for name, bandwidth in links.items():
        plain, _, times = name.partition("@")
        assert bandwidth == members.link(plain).bandwidth / float(times.rstrip("x") or 1)


def test_a_file_says_them_the_same_way(tmp_path: Path) -> None:
    file = own(tmp_path, OWN.replace('"h100"', '"h100@1.25x"').replace('"ib-ndr"', '"ib-ndr@2x"'))
    found = catalog.cluster(file)
    assert found.device.pace == 1.25
    assert found.levels[-1].link.bandwidth == members.link("ib-ndr").bandwidth / 2


@pytest.mark.parametrize("text", ["8xh100@x", "8xh100@0.5x", "8xh100,ib-ndr@4", "16xh100,ib-ndr@0x"])
def test_how_many_times_slower_has_to_be_said(text: str) -> None:
    with pytest.raises(BadInput) as problem:
        catalog.cluster(text)
    assert problem.value.fix
