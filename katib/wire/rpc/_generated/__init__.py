"""Stubs made from `proto/` by `make proto`, in a descriptor pool of their own."""

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
