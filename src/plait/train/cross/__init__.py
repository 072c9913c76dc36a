"""Training of cross-encoders: three heads on any backbone, one loss, and export to the folder that search reads."""
