"""Small parts that all packages use. They import nothing of Leasehold."""
