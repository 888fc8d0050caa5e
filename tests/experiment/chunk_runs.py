"""Runs of every kind of computation that clients make in chunks."""

RECORDS = ("algorithm=dp_fl", "partition=iid", "partition.clients=7", "epsilon=null", "rounds=3")
CLIENTS = (
    "algorithm=cdp_fedavg", "partition.clients=20", "algorithm.client_rate=0.5", "algorithm.batch_size=20",
    "epsilon=null", "rounds=3",
)  # fmt: skip
REPORTS = ("algorithm=ldp_fedsgd", "partition.clients=12", "epsilon=null", "rounds=3")
WEI = (
    "algorithm=wei_cdp",
    "partition=fixed_size",
    "partition.clients=8",
    "rounds=2",
    "epsilon=null",
)
ATTACK = ("attack=pixel_pattern", "attack.trigger.size=2", "attack.attackers=3")
RUNS = {
    "records": RECORDS,
    "records, local steps": (*RECORDS, "algorithm.local_steps=3"),
    "records, norms that adapt": (*RECORDS[1:], "algorithm=adap_dpfl"),
    "records, layers": (*RECORDS, "clipper=per_layer", "clipper.clip_norm=0.5"),
    "records, copies": (
        *RECORDS, "algorithm.augmentation_multiplicity=2", "algorithm.random_crop=1",
        "algorithm.local_steps=2",
    ),
    "records, one sum": ("algorithm=dp_fl_server", *RECORDS[1:]),
    "clients": CLIENTS,
    "clients, projected": ("algorithm=naseri_cdp", *CLIENTS[1:3], "epsilon=null", "rounds=3"),
    "clients, sums of whole numbers": (
        "algorithm=ddp_fedavg", "partition.clients=8", "algorithm.shares=skellam",
        "noise_schedule=constant", "epsilon=null", "rounds=2",
    ),
    "clients, full batches": (*WEI, "algorithm.sensitivity=update", "noise_schedule=constant"),
    "clients, gradients": REPORTS,
    "clients, correlated noise": (
        "algorithm=dp_ftrl", "noise_schedule=constant", "partition.clients=12", "rounds=3",
        "algorithm.min_separation=3", "epsilon=null",
    ),
    "clients, attackers": (*CLIENTS, *ATTACK),
    "clients, buckets": (*CLIENTS, "aggregation=bucketed_median"),
    "records, buckets": ("algorithm=dp_fl_server", *RECORDS[1:], "aggregation=bucketed_median"),
    "clients, buckets of whole numbers": (
        "algorithm=ddp_fedavg", "partition.clients=8", "algorithm.shares=skellam",
        "noise_schedule=constant", "epsilon=null", "rounds=2", "aggregation=bucketed_median",
    ),
}  # fmt: skip
