"""Pure readers of checkpoint folders: a listing in, the newest complete checkpoint out."""
