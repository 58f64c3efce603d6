"""Price a portfolio of options by Monte Carlo, and compare with the exact prices.

Each position is cut into tasks of some thousand simulated prices with a seed of their own, so that the result is the
same whichever worker does what. The model is that of Black and Scholes, for which a formula exists to check against.

    python examples/portfolio.py
"""

import math
import random
from dataclasses import dataclass
from statistics import NormalDist

from gristmill import Client, LocalCluster

RATE = 0.03
"""Interest a year, continuously compounded."""
PATHS_PER_TASK = 5_000
TASKS_PER_POSITION = 8


@dataclass(frozen=True)
class Position:
    """So many European options on one share."""

    name: str
    kind: str
    """`call` or `put`."""
    count: int
    spot: float
    strike: float
    volatility: float
    years: float


PORTFOLIO = [
    Position("Millstone plc", "call", 100, spot=100.0, strike=105.0, volatility=0.20, years=1.0),
    Position("Millstone plc", "put", 80, spot=100.0, strike=95.0, volatility=0.20, years=0.5),
    Position("Weir & Sluice", "call", 50, spot=42.0, strike=40.0, volatility=0.35, years=2.0),
    Position("Harvest Grain", "put", 200, spot=12.5, strike=13.0, volatility=0.28, years=0.25),
]


def payoff(position: Position, price: float) -> float:
    """What one option is worth at its end."""
    gain = price - position.strike if position.kind == "call" else position.strike - price
    return max(gain, 0.0)


def simulate(position: Position, seed: str, paths: int) -> tuple[float, float]:
    """Sum and sum of squares of the discounted payoffs of `paths` random prices."""
    normal = random.Random(seed).gauss
    drift = (RATE - position.volatility**2 / 2) * position.years
    spread = position.volatility * math.sqrt(position.years)
    discount = math.exp(-RATE * position.years)
    total = squares = 0.0
    for _ in range(paths):
        value = discount * payoff(position, position.spot * math.exp(drift + spread * normal(0.0, 1.0)))
        total += value
        squares += value * value
    return total, squares


def price(samples: list[tuple[float, float]], paths: int) -> tuple[float, float]:
    """Mean and standard error out of the sums of several tasks."""
    count = paths * len(samples)
    mean = sum(total for total, _ in samples) / count
    variance = sum(squares for _, squares in samples) / count - mean**2
    return mean, math.sqrt(variance / count)


def exact_price(position: Position) -> float:
    """The formula of Black and Scholes."""
    spread = position.volatility * math.sqrt(position.years)
    upper = (math.log(position.spot / position.strike) + RATE * position.years) / spread + spread / 2
    sign = 1 if position.kind == "call" else -1
    share = NormalDist().cdf(sign * upper)
    bond = NormalDist().cdf(sign * (upper - spread))
    return sign * (position.spot * share - position.strike * math.exp(-RATE * position.years) * bond)


def main() -> None:
    """Two stages: simulations, and for each position a task that depends on its own."""
    with LocalCluster(workers=2) as cluster, Client(cluster) as client:
        prices = []
        for position in PORTFOLIO:
            samples = [
                client.submit(simulate, position, f"{position}/{part}", PATHS_PER_TASK)
                for part in range(TASKS_PER_POSITION)
            ]
            prices.append(client.submit(price, samples, PATHS_PER_TASK))
        total = 0.0
        for position, future in zip(PORTFOLIO, prices, strict=True):
            simulated, error = future.result()
            exact = exact_price(position)
            total += position.count * simulated
            print(
                f"{position.count:>4} x {position.name:<14} {position.kind:<4} {simulated:7.3f} +- {error:.3f}"
                f"   exact {exact:7.3f}"
            )
            if abs(simulated - exact) > 5 * error:
                raise SystemExit(f"{position} is priced wrongly")
        print(f"The portfolio is worth {total:,.0f}")


if __name__ == "__main__":
    main()
