"""`manage.py bench chaos`: what goes wrong in operation, done on purpose to a site of its own."""
