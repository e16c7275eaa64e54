"""One run's report for people and for machines: ``report.md``, ``report.html`` and ``report.json``."""

from benchmarks.report.data import ArtifactRow, BaselineRow, ReportData, SpeedUp, StageRow
from benchmarks.report.write import write_report

__all__ = ["ArtifactRow", "BaselineRow", "ReportData", "SpeedUp", "StageRow", "write_report"]
