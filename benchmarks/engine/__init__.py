"""Speed of an index: engines side by side, updates, filters, start-up."""
