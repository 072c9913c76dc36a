"""Small models over the states of a frozen encoder, and how they learn: the one part of `reproduce` with torch."""
