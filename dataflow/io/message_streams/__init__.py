"""What readers and writers of message streams have in common: values as bytes, and a reader by positions."""
