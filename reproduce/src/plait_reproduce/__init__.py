"""The papers' claims in miniature: small experiments on real data, their verdicts, and the report made of them.

An `Experiment` says what is claimed and how it is tested; its `Arm`s do the work, each kept on disk when it is done; a
`Result` is what they showed, as JSON; the report is written from results alone.
"""
