"""Random numbers of the engine, as `kernels/src/random.rs` draws them: functions of a seed and counters."""

import numpy as np


def mix(z: np.ndarray) -> np.ndarray:
    """Finaliser of SplitMix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(seed: int, *counters) -> np.ndarray:
    """Numbers from 0 to 1 for counters: response, step, number."""
    with np.errstate(over="ignore"):
        state = mix(np.asarray(seed, np.uint64) ^ np.uint64(0x9E3779B97F4A7C15))
        for number in counters:
            counter = np.asarray(number, np.uint64) * np.uint64(0xD6E8FEB86659FD93) + np.uint64(0x2545F4914F6CDD1D)
            state = mix(state ^ counter)
    return ((state >> np.uint64(40)).astype(np.float64) / (1 << 24)).astype(np.float32)


def normal(seed: int, response: int, steps: np.ndarray, numbers: int) -> np.ndarray:
    """Normal numbers, `[steps, numbers]`, each a function of its step and its number."""
    step, number = np.meshgrid(steps, np.arange(numbers), indexing="ij")
    first = (1 << 32) + 2 * number
    draws = [uniform(seed, response, step, first + of).astype(np.float64) for of in (0, 1)]
    return (np.sqrt(-2 * np.log(1 - draws[0])) * np.cos(2 * np.pi * draws[1])).astype(np.float32)
