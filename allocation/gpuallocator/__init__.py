"""TensorFusion's GPU allocator over our ledger, for programs that embed it (docs/library.md)."""
