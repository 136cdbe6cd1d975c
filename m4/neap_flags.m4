# Compiler flags, each asked for by itself so that an older or newer compiler only loses what it does not know.

# NEAP_TRY_FLAG(VARIABLE, FLAG): appends FLAG to VARIABLE when the C compiler takes it without a warning.
AC_DEFUN([NEAP_TRY_FLAG], [
	AS_VAR_PUSHDEF([answer], [neap_cv_flag_$2])
	AC_CACHE_CHECK([whether $CC takes $2], [answer], [
		neap_saved_CFLAGS=$CFLAGS
		CFLAGS="-Werror $2"
		AC_COMPILE_IFELSE([AC_LANG_PROGRAM([])], [AS_VAR_SET([answer], [yes])], [AS_VAR_SET([answer], [no])])
		CFLAGS=$neap_saved_CFLAGS
	])
	AS_VAR_IF([answer], [yes], [$1="$$1 $2"])
	AS_VAR_POPDEF([answer])
])

# NEAP_TRY_LINK(FLAGS): stops configure when a program cannot be linked with FLAGS.
AC_DEFUN([NEAP_TRY_LINK], [
	AC_MSG_CHECKING([whether $CC links with $1])
	neap_saved_CFLAGS=$CFLAGS
	CFLAGS="$CFLAGS $1"
	AC_LINK_IFELSE([AC_LANG_PROGRAM([])], [AC_MSG_RESULT([yes])],
		[AC_MSG_RESULT([no]); AC_MSG_ERROR([$CC cannot link with $1: install its sanitizer runtime or choose another compiler])])
	CFLAGS=$neap_saved_CFLAGS
])

# NEAP_WARNINGS: fills NEAP_CFLAGS.
AC_DEFUN([NEAP_WARNINGS], [
	NEAP_CFLAGS="-std=c11 -fvisibility=hidden"
	NEAP_TRY_FLAG([NEAP_CFLAGS], [-fno-common])
	NEAP_TRY_FLAG([NEAP_CFLAGS], [-Wall])
	NEAP_TRY_FLAG([NEAP_CFLAGS], [-Wextra])
	NEAP_TRY_FLAG([NEAP_CFLAGS], [-Wshadow])
	NEAP_TRY_FLAG([NEAP_CFLAGS], [-Wswitch-enum])
	NEAP_TRY_FLAG([NEAP_CFLAGS], [-Wconversion])
	NEAP_TRY_FLAG([NEAP_CFLAGS], [-Wstrict-prototypes])
	NEAP_TRY_FLAG([NEAP_CFLAGS], [-Wmissing-prototypes])
	NEAP_TRY_FLAG([NEAP_CFLAGS], [-Wvla])
	NEAP_TRY_FLAG([NEAP_CFLAGS], [-Wundef])
	NEAP_TRY_FLAG([NEAP_CFLAGS], [-Wpointer-arith])
	NEAP_TRY_FLAG([NEAP_CFLAGS], [-Woverride-init])
	AS_IF([test "x$enable_werror" = xyes], [NEAP_CFLAGS="$NEAP_CFLAGS -Werror"])
])
