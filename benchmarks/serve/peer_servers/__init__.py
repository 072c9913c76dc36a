"""Small programs that run in the environments of other search engines. They import nothing of plait."""
