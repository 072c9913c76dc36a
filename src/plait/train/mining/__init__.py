"""Hard negatives: passages that rank high for a query but are not known to answer it, and teachers' scores for them."""
