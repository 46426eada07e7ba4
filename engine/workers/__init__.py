"""Programs that keep one model ready and answer JSON lines on standard input, and clients of them."""
