"""Visual Planning for Assistance: plans over a closed set of actions, baselines that need no model, the remap."""
