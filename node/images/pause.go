package images

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"runtime"
	"strings"
)

// The pause program holds a pod's namespaces open. It is small enough to be written by hand: about 250 bytes instead of
// the weight of proa itself in the memory and page tables of every pod. In C it would read
//
//	static struct sigaction act = { .sa_handler = SIG_IGN };
//	static unsigned long set = 1 << (SIGINT-1) | 1 << (SIGTERM-1);
//	rt_sigaction(SIGCHLD, &act, 0, 8);      // as process 1 of a shared PID namespace: the kernel reaps children
//	rt_sigprocmask(SIG_BLOCK, &set, 0, 8);  // process 1 gets a signal only when it is handled or blocked
//	while (rt_sigtimedwait(&set, 0, 0, 8) < 0)
//		;
//	exit_group(0);
//
// pauseCode has the instructions and then act and set, as the assembler made them.
var pauseCode = map[string]struct {
	machine uint16 // e_machine of the ELF header
	code    string
}{
	"amd64": {0x3e, `
		b8 0d 00 00 00          mov    $13,%eax        rt_sigaction
		bf 11 00 00 00          mov    $17,%edi        SIGCHLD
		48 8d 35 47 00 00 00    lea    act(%rip),%rsi
		31 d2                   xor    %edx,%edx
		41 ba 08 00 00 00       mov    $8,%r10d
		0f 05                   syscall
		b8 0e 00 00 00          mov    $14,%eax        rt_sigprocmask
		31 ff                   xor    %edi,%edi       SIG_BLOCK
		48 8d 35 4f 00 00 00    lea    set(%rip),%rsi
		31 d2                   xor    %edx,%edx
		41 ba 08 00 00 00       mov    $8,%r10d
		0f 05                   syscall
		b8 80 00 00 00          again: mov $128,%eax   rt_sigtimedwait
		48 8d 3d 39 00 00 00    lea    set(%rip),%rdi
		31 f6                   xor    %esi,%esi
		31 d2                   xor    %edx,%edx
		41 ba 08 00 00 00       mov    $8,%r10d
		0f 05                   syscall
		85 c0                   test   %eax,%eax
		78 e4                   js     again
		b8 e7 00 00 00          mov    $231,%eax       exit_group
		31 ff                   xor    %edi,%edi
		0f 05                   syscall
		01 00 00 00 00 00 00 00 act:   .quad 1,0,0,0
		00 00 00 00 00 00 00 00
		00 00 00 00 00 00 00 00
		00 00 00 00 00 00 00 00
		02 40 00 00 00 00 00 00 set:   .quad 0x4002`},
	"arm64": {0xb7, `
		c8 10 80 d2             mov    x8, #134        rt_sigaction
		20 02 80 d2             mov    x0, #17         SIGCHLD
		81 02 00 10             adr    x1, act
		e2 03 1f aa             mov    x2, xzr
		e3 03 7d b2             mov    x3, #8
		01 00 00 d4             svc    #0
		e8 10 80 d2             mov    x8, #135        rt_sigprocmask
		e0 03 1f aa             mov    x0, xzr         SIG_BLOCK
		c1 02 00 10             adr    x1, set
		e2 03 1f aa             mov    x2, xzr
		e3 03 7d b2             mov    x3, #8
		01 00 00 d4             svc    #0
		28 11 80 d2             again: mov x8, #137    rt_sigtimedwait
		20 02 00 10             adr    x0, set
		e1 03 1f aa             mov    x1, xzr
		e2 03 1f aa             mov    x2, xzr
		e3 03 7d b2             mov    x3, #8
		01 00 00 d4             svc    #0
		40 ff ff 37             tbnz   w0, #31, again
		c8 0b 80 d2             mov    x8, #94         exit_group
		e0 03 1f aa             mov    x0, xzr
		01 00 00 d4             svc    #0
		01 00 00 00 00 00 00 00 act:   .quad 1,0,0,0
		00 00 00 00 00 00 00 00
		00 00 00 00 00 00 00 00
		00 00 00 00 00 00 00 00
		02 40 00 00 00 00 00 00 set:   .quad 0x4002`},
}

// assemble takes the hexadecimal columns of a listing.
func assemble(listing string) ([]byte, error) {
	var code []byte
	for line := range strings.Lines(listing) {
		for _, field := range strings.Fields(line) {
			// Mnemonics follow the bytes and none of them has two characters.
			octet, err := hex.DecodeString(field)
			if len(field) != 2 || err != nil {
				break
			}
			code = append(code, octet...)
		}
	}
	if len(code)%8 != 0 {
		return nil, fmt.Errorf("listing has %d bytes", len(code))
	}
	return code, nil
}

// pauseProgram returns the pause program as a static ELF executable: one header, one segment, no sections.
func pauseProgram(architecture string) ([]byte, error) {
	source, ok := pauseCode[architecture]
	if !ok {
		return nil, fmt.Errorf("no pause program for architecture %s", architecture)
	}
	code, err := assemble(source.code)
	if err != nil {
		return nil, fmt.Errorf("pause program: %w", err)
	}
	const (
		base       = 0x400000
		headerSize = 64 + 56
	)
	size := uint64(headerSize + len(code))
	var out bytes.Buffer
	for _, value := range []any{
		[16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, // 64 bits, little endian
		uint16(2), source.machine, uint32(1),   // executable
		uint64(base + headerSize), uint64(64), uint64(0), // entry, program headers, section headers
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(64), uint16(0), uint16(0),
		uint32(1), uint32(5), // PT_LOAD, readable and executable
		uint64(0), uint64(base), uint64(base), size, size, uint64(0x10000),
		code,
	} {
		if err := binary.Write(&out, binary.LittleEndian, value); err != nil {
			return nil, fmt.Errorf("pause program: %w", err)
		}
	}
	return out.Bytes(), nil
}

// pauseImage makes the pause image of this machine's architecture.
func pauseImage() (imageContent, error) {
	program, err := pauseProgram(runtime.GOARCH)
	if err != nil {
		return imageContent{}, err
	}
	return singleFile(PauseImage, file{name: "pause", size: int64(len(program)), open: bytesBlob("", program).open},
		containerPlan{User: "65535:65535", Entrypoint: []string{"/pause"}, WorkingDir: "/"})
}
