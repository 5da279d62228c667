"""Lowering to native libraries with AOTInductor: each part of the programs is compiled once, whatever the depth."""
