"""What is asked of a running job and done for it, from whichever process."""
