"""Methods of searching compressed items: plait's own, and those of the papers, one file each."""
