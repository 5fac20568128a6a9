"""Early stopping by comparison with the median of earlier trials at the same step."""

from suggestion_services.medianstop.medianstop import MedianStop
