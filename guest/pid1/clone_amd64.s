#include "textflag.h"

// func rawClone(flags uintptr, pid *int32) (r1, errno uintptr)
TEXT ·rawClone(SB),NOSPLIT|NOFRAME,$0-32
	MOVQ	flags+0(FP), DI
	MOVQ	$0, SI
	MOVQ	pid+8(FP), DX
	MOVQ	$0, R10
	MOVQ	$0, R8
	MOVQ	$56, AX
	POPQ	R12 // the return address: the child writes where it lay
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $0xfffffffffffff001
	JLS	ok
	NEGQ	AX
	MOVQ	$0, r1+16(FP)
	MOVQ	AX, errno+24(FP)
	RET
ok:
	MOVQ	AX, r1+16(FP)
	MOVQ	$0, errno+24(FP)
	RET
