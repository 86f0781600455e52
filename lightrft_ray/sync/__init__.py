"""Publishing weights from learners to generators."""
