"""The work of arms, shared by the claims."""
