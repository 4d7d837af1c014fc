#include "textflag.h"

// func rawClone(flags uintptr, pid *int32) (r1, errno uintptr)
TEXT ·rawClone(SB),NOSPLIT,$0-32
	MOVD	flags+0(FP), R0
	MOVD	$0, R1
	MOVD	pid+8(FP), R2
	MOVD	$0, R3
	MOVD	$0, R4
	MOVD	$220, R8
	SVC
	CMN	$4095, R0
	BCC	ok
	NEG	R0, R0
	MOVD	$0, r1+16(FP)
	MOVD	R0, errno+24(FP)
	RET
ok:
	MOVD	R0, r1+16(FP)
	MOVD	$0, errno+24(FP)
	RET
