// Empty: with an assembly file a package may declare functions without a body.
