"""Entry points of training jobs: each reads its configuration and hands it to the driver."""
