"""Monte Carlo: the price of an Asian call option, from ten million steps of random walks on numpy.

python examples/option_pricing.py
"""

import numpy as np

from gristmill import Client, LocalCluster

SPOT, STRIKE, RATE, VOLATILITY, YEARS = 100.0, 105.0, 0.03, 0.2, 1.0
DAYS, PATHS, BATCHES = 50, 10_000, 20


def mean_payoff(seed: int) -> tuple[float, float]:
    """Mean and variance of the discounted payoff over PATHS walks; each seed gives other walks."""
    random = np.random.default_rng(seed)
    step = YEARS / DAYS
    drift, spread = (RATE - VOLATILITY**2 / 2) * step, VOLATILITY * step**0.5
    walks = SPOT * np.exp(np.cumsum(drift + spread * random.standard_normal((PATHS, DAYS)), axis=1))
    payoffs = np.exp(-RATE * YEARS) * np.maximum(walks.mean(axis=1) - STRIKE, 0.0)
    return float(payoffs.mean()), float(payoffs.var())


def main() -> None:
    """Each batch is a task; what comes back is two numbers."""
    with LocalCluster(workers=2) as cluster, Client(cluster) as client:
        batches = client.map(mean_payoff, range(BATCHES))
    price = sum(mean for mean, _ in batches) / BATCHES
    error = (sum(variance for _, variance in batches) / BATCHES / (PATHS * BATCHES)) ** 0.5
    print(f"an Asian call is worth {price:.2f}, give or take {2 * error:.2f}")


if __name__ == "__main__":
    main()
