"""The Video configuration on the world in pictures: does a small planner read its history from pixels?"""
