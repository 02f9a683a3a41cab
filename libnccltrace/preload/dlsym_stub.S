/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlsym: names that cannot be ours go to the next dlsym in load order by a jump, so that it sees the caller's return
 * address, on which RTLD_NEXT and RTLD_DEFAULT rest. Others are shown to nt_dlsym_filter first, which answers with
 * 0 for the same jump, 1 for NULL, or what dlsym is to return. Takes nothing but the stack: it may be the first code of
 * this library that runs, before relocations of others are done.
 *
 *   void *dlsym(void *handle, const char *name)
 */
#if defined(__x86_64__)
#if defined(__CET__)
#include <cet.h> /* the note that says so */
#endif
        .text
        .p2align 4
        .globl dlsym
        .type dlsym, @function
dlsym:
        .cfi_startproc
        endbr64
        movq    nt_dlsym_next(%rip), %rax
        testq   %rax, %rax
        je      .Lask
        testq   %rsi, %rsi
        je      .Lpass
        movzbl  (%rsi), %r11d
        cmpb    $'n', %r11b
        je      .Lask
        cmpb    $'c', %r11b
        je      .Lask
        cmpb    $'p', %r11b
        je      .Lask
.Lpass: jmp     *%rax
.Lask:  pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        pushq   %r8
        .cfi_adjust_cfa_offset 8
        pushq   %r9
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        movq    56(%rsp), %rdx
        call    nt_dlsym_filter
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %r9
        .cfi_adjust_cfa_offset -8
        popq    %r8
        .cfi_adjust_cfa_offset -8
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        cmpq    $1, %rax
        ja      .Lanswer
        je      .Labsent
        movq    nt_dlsym_next(%rip), %rax
        testq   %rax, %rax
        jne     .Lpass
.Labsent:
        xorl    %eax, %eax
.Lanswer:
        ret
        .cfi_endproc
        .size dlsym, .-dlsym

#elif defined(__aarch64__)
        .text
        .p2align 4
        .globl dlsym
        .type dlsym, %function
dlsym:
        .cfi_startproc
        hint    #34                     /* bti c */
        adrp    x16, nt_dlsym_next
        ldr     x16, [x16, #:lo12:nt_dlsym_next]
        cbz     x16, .Lask
        cbz     x1, .Lpass
        ldrb    w17, [x1]
        cmp     w17, #'n'
        b.eq    .Lask
        cmp     w17, #'c'
        b.eq    .Lask
        cmp     w17, #'p'
        b.eq    .Lask
.Lpass: br      x16
.Lask:  stp     x29, x30, [sp, #-80]!
        .cfi_adjust_cfa_offset 80
        .cfi_rel_offset x29, 0
        .cfi_rel_offset x30, 8
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        mov     x2, x30
        bl      nt_dlsym_filter
        mov     x17, x0
        ldp     x0, x1, [sp, #16]
        ldp     x2, x3, [sp, #32]
        ldp     x4, x5, [sp, #48]
        ldp     x6, x7, [sp, #64]
        ldp     x29, x30, [sp], #80
        .cfi_restore x29
        .cfi_restore x30
        .cfi_adjust_cfa_offset -80
        cmp     x17, #1
        b.hi    .Lanswer
        b.eq    .Labsent
        adrp    x16, nt_dlsym_next
        ldr     x16, [x16, #:lo12:nt_dlsym_next]
        cbnz    x16, .Lpass
.Labsent:
        mov     x17, #0
.Lanswer:
        mov     x0, x17
        ret
        .cfi_endproc
        .size dlsym, .-dlsym

/* This object keeps what the linker notes of all: landing pads for indirect branches. */
        .section .note.gnu.property, "a"
        .p2align 3
        .word   4, 16, 5
        .asciz  "GNU"
        .word   0xc0000000, 4, 1, 0
#else
#error "dlsym is written for x86-64 and aarch64"
#endif
        .section .note.GNU-stack, "", %progbits
