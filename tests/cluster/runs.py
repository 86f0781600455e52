"""The run of these tests: two learner ranks and two generators, on one host or on three."""

STEPS = 6
OPTIONS = {
    "num_steps": STEPS,
    "save_steps": 1,
    "cpu_learner_ranks": 2,
    "vllm_num_engines": 2,
}

# A learner rank on each of host 1 and 2, a generator on each of host 2 and 3.
RESOURCES = {
    1: {"learners": 1, "rewards": 1},
    2: {"learners": 1, "generators": 1},
    3: {"generators": 1},
}
PINNED = OPTIONS | {
    "placement.resources": (
        "{learner: {learners: 1}, generator: {generators: 1}, reward: {rewards: 1}}"
    ),
    "placement_timeout": 120,
}
