"""What training makes smaller, one file each: pure functions of score tensors."""
