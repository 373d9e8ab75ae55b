"""What the released tool really computes, and where its versions differ: every oddity has a name here.

The tool (github.com/TruongThaoNguyen/paraDL-analysis, 2020) comes with logs of several of its own
versions. Three of them are kept; `table3` is the paper's table without the oddities.
"""

from __future__ import annotations

import msgspec

from foretell.errors import UnknownName
from foretell.hardware.cluster import Cluster
from foretell.replicas.paradl.platform import Platform, of_cluster


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Constants and oddities of one version."""

    name: str
    source: str
    platform: Platform

    gamma: float = 1.0
    """The paper's reuse factor: what memory really takes, over the plain sum of all layers (section 4.1)."""

    clean: bool = False
    """The rows of the paper's Table 3 instead of the tool's; no other field but the platform counts."""

    # data + filter: p2 all-reduces of gradients at once, one for each part of the filters
    df_contention: int = 1
    """They share the link between nodes: its bandwidth is divided by this times p2 (the paper: phi)."""
    df_sends_all_weights: bool = False
    """Each of them moves all weights, as ChainerMNX did, not only its part of the filters."""

    # spatial, and data + spatial
    halos_by_host: bool = False
    """Halos and the gathering at the last split layer go through MPI without GPUDirect; in pure spatial parallelism
    the sum of gradients, too."""
    spatial_halo_of_most_samples: bool = False
    """Pure spatial: the halo is of the samples that would fit in memory, not of a single one."""
    ds_halo_is_face: bool = False
    """Data + spatial: the halo is channels x kernel half x other extents x samples; else an edge, of one sample."""
    ds_halo_at_every_window: bool = False
    """Data + spatial: layers between split ones exchange halos too, though every rank does them whole."""
    ds_halo_contention: int = 0
    """Data + spatial: the bandwidth for halos is divided by this times p2; 0 leaves it whole."""
    ds_gather_contention: int = 1
    """Data + spatial: the bandwidth for the gathering is divided by this."""
    ds_gathers_whole: bool = False
    """Data + spatial: each of the p2 - 1 steps of the gathering moves the whole tensor, not a share of it."""
    ds_leader_contention: int = 0
    """Data + spatial: the bandwidth between leaders is divided by this times p2; 0: by a fixed number, the next."""
    ds_leader_flows: int = 0
    """Data + spatial: the bandwidth between leaders is divided by this whatever p2 is."""

    # in all versions
    seconds_shared_by_flops: bool = True
    """Only the total seconds of a layer file count: they are shared out again in proportion to flops."""
    filter_weights_divided_twice: bool = True
    """Filter and channel: bytes of split weights are divided by p, and then all weights by p once more."""
    spatial_counts_reused: bool = True
    """Spatial sums of |x| and |y| take in ReLU and norm layers, which the other rows leave out."""
    ds_ends_at_split: bool = True
    """Data + spatial: seconds and bytes of the layers after the last split one are left out."""
    spatial_halo_is_edge: bool = True
    """Pure spatial: a halo is extent x kernel half, without channels and other extents."""
    spatial_broken_steps: bool = True
    """Pure spatial: gradients are exchanged D / B times an epoch, not a whole number of times."""
    pipeline_keeps_one_segment: bool = True
    """Pipeline: activations of one segment are kept, not of the whole batch."""

    def quirks(self, strategy: str) -> list[str]:
        """The oddities of one row that are on, by the names of their fields."""
        if self.clean:
            return []
        names = [name for name in self.__struct_fields__ if name.startswith(_PREFIXES.get(strategy, ()))]
        return [name for name in names if getattr(self, name) != _PLAIN.get(name, 0)]


_PREFIXES: dict[str, tuple[str, ...]] = {
    "spatial": ("seconds_", "halos_", "spatial_"),
    "pipeline": ("seconds_", "pipeline_"),
    "filter": ("seconds_", "filter_"),
    "channel": ("seconds_", "filter_"),
    "data+filter": ("seconds_", "df_"),
    "data+spatial": ("seconds_", "halos_", "ds_", "spatial_counts_"),
}
"""With what the names of the oddities of a row begin."""

_PLAIN = {"ds_gather_contention": 1}
"""Numbers that mean nothing odd; others are 0 or False."""

_OLD, _NEW = Platform(cable_startup=15e-6), Platform(cable_startup=20e-6)

_LATE = Release(
    name="2021",
    source="the later logs (data + filter on 1024 ranks, CosmoFlow)",
    platform=_NEW,
    df_contention=2,
    df_sends_all_weights=True,
    halos_by_host=True,
    spatial_halo_of_most_samples=True,
    ds_halo_is_face=True,
    ds_halo_contention=2,
    ds_gather_contention=2,
    ds_gathers_whole=True,
    ds_leader_contention=2,
)

RELEASES: dict[str, Release] = {
    "2020": Release(
        name="2020",
        source="the first logs (scaling of data, filter and channel; ranking of ResNet-50)",
        platform=_OLD,
        ds_halo_at_every_window=True,
        ds_leader_flows=4,
    ),
    "2021": _LATE,
    "source": msgspec.structs.replace(
        _LATE, name="source", source="the tool's source as it was left", ds_gathers_whole=False
    ),
    "table3": Release(
        name="table3", source="Table 3 of the paper, with the later constants", platform=_NEW, clean=True
    ),
}

DEFAULT = "2020"


def on_cluster(cluster: Cluster, gamma: float) -> Release:
    """Table 3 with the links and the memory of a cluster."""
    source = "Table 3 of the paper, with the links, the memory and the layers' seconds of this cluster"
    return Release(name="table3", source=source, platform=of_cluster(cluster), clean=True, gamma=gamma)


def release(name: str) -> Release:
    """The version of this name."""
    if name not in RELEASES:
        raise UnknownName(f"the paper's tool has no release {name!r}", fix=", ".join(RELEASES))
    return RELEASES[name]
