"""Ready-made rewards: each a pure function of one sample; `rewards.functions` lists them."""
