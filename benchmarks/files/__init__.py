"""Reading and syncing files of real machines."""
