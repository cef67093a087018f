"""Samples and what is said of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


def percentile(samples: Sequence[float], share: float) -> float:
    """The least sample that at least this share of all samples does not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


@dataclass(frozen=True)
class Figure:
    """A measure: its unit, its samples, and the samples of the same run that it is divided by. `reach` is the greatest ratio or value aimed at."""

    name: str
    unit: str
    samples: Sequence[float]
    over: "Figure | None" = None
    reach: float | None = None
    note: str = ""

    @property
    def median(self) -> float:
        """The middle sample."""
        return median(self.samples)

    @property
    def p95(self) -> float:
        """What 95 of 100 samples don't exceed."""
        return percentile(self.samples, 0.95)

    @property
    def ratio(self) -> float | None:
        """Median over median of the same run."""
        return self.median / self.over.median if self.over else None

    @property
    def reached(self) -> bool | None:
        """Whether the aim was met; None without one."""
        if self.reach is None:
            return None
        return (self.ratio if self.ratio is not None else self.median) <= self.reach

    def as_json(self) -> dict[str, object]:
        """For the file of a run."""
        return {
            "name": self.name,
            "unit": self.unit,
            "samples": len(self.samples),
            "median": round(self.median, 3),
            "p95": round(self.p95, 3),
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "over": self.over.name if self.over else None,
            "reach": self.reach,
            "reached": self.reached,
            "note": self.note,
        }
