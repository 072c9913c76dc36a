"""The papers' claims in miniature: small experiments on real data, their verdicts, and a report.

An `Experiment` states a claim and how it is tested. Its `Arm`s do the work; a finished arm is saved. A `Result` holds
the numbers and the verdict as JSON, and the report is written from results alone.
"""
