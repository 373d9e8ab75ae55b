"""Records: one immutable, versioned file per prediction, run or calibration."""
