"""What is seen of a video: decoding and sampling of frames, and Phi, which tells what was done in them."""
