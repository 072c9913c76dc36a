"""Finding: generators that propose documents, fusion that weaves their lists, plans that put them together."""
