"""Early stopping by comparison with the median of what earlier trials had achieved at the same step."""

from suggestion_services.medianstop.medianstop import MedianStop

__all__ = ["MedianStop"]
