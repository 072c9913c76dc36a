"""Mining: hard negatives by searching, teacher scores, and the removal of negatives that answer after all."""
